`bin/bench` measures records with 1, 8, 32 and 128 connections and what a receipt takes on disk; `--records` measures only them, and `--picture FILE` draws them.
