"""A gallery of symptoms: synthetic runs from fixed seeds, judged by all rules, and drawn for the documentation."""
