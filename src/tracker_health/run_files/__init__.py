"""From the files of a run, wherever they are, to typed evidence."""
