"""The Hub: a client for publishing, and an embedded server for rehearsals and tests."""
