"""Zoos: networks of many architectures on several data sets, poisoned by every kind of trigger."""
