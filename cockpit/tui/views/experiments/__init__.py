"""The page of MLflow's runs."""
