Deny lists accept `workloadStatements`: a peer whose verified statement is listed is refused by outbound listeners that verify, and open
connections to it are cut.
