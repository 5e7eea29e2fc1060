"""Many runs: a server swept, a registry gated, a run followed, a server tried out."""
