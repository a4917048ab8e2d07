"""Whether the readers of files hold: conformance suites, files that people ship, damaged files."""
