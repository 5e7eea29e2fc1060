"""Rules on the machine: accelerator, memory, time per step."""
