"""One run, from what a user names to the verdict on it; and what the tags of many say."""
