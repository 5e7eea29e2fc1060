"""From evidence to a report, and from a report to what is written: rules are run, nothing is read or sent."""
