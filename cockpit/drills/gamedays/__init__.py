"""Game days: files of drills, run one after the other."""
