"""The checks, as pure functions of the demand, the target and the answers of its pods."""
