"""The user's configuration, and the files that cockpit keeps."""
