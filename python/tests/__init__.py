"""Tests of the package steward."""
