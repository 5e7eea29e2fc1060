"""For authors of rules and stores: helpers and suites for their tests."""
