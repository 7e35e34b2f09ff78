"""Faster recovery, beyond Ray's settings: spare processes, and fixes of Ray Train's restarts.

`RAY_TRAIN_CALLBACKS` loads it into Ray Train's controller, like the telemetry; `cockpit launch
--recovery fast` sets the variable.
"""
