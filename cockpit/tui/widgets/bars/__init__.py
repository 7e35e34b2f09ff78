"""Shares and recoveries as bars."""
