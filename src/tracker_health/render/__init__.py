"""Reports for people: the terminal, and the pages and texts that explain a rule. Knows no store."""
