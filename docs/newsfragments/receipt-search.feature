Stored records can be searched by time, client, path, status and outcome: `INotaryStore.find(ReceiptQuery(...))`, newest first. A
search reads a bounded number of records and octets, in slices between which other reads are carried out.
