"""From files to typed evidence: one file format each. No tracker, no torch, and no code from a file is ever run."""
