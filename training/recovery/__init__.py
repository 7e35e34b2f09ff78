"""What makes a run come back sooner, beside Ray's settings: spare processes, and a fresh count.

Loaded into Ray Train's controller by `RAY_TRAIN_CALLBACKS`, like the telemetry; `cockpit launch
--recovery fast` names it there.
"""
