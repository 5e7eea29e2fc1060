"""What is fetched from elsewhere: which servers may be asked, for how long, and in which parts."""
