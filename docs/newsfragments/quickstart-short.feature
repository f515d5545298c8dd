`bin/quickstart` shows the fields of both reports that matter and writes the whole reports to `.quickstart/reports.txt`; it removes
its temporary folder at the end and after an interrupt, and keeps and names it after an error and with `--keep`.
