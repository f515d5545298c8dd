`bin/quickstart` shows the main job in one command, on its own authority or on a SPIRE that is there.
