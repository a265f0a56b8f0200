"""The database: tables, transactions, and the ledger over them."""
