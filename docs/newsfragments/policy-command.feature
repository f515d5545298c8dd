`svc policy check` validates policy files, names rules that never decide and explains a decision offline; `svc policy test` compares decisions with a table of expected ones.
