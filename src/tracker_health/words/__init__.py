"""Plain vocabulary: verdicts, endings, answers of people, names. Data and its words, without logic on a run."""
