"""What an agent may ask of runs: a server of the Model Context Protocol, and the tools behind it."""
