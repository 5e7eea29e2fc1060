"""Where runs live: each store gives runs that can be read (a source) and written back to (a sink)."""
