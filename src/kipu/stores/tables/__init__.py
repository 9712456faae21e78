"""SQLite tables that more than one store keeps: heads, bindings, idempotency keys, tombstones, search.

They are functions over an `apsw.Connection` whose owner holds the transaction; `schema.create` makes them all.

- `schema.create(connection)`; `engine.check_engine()`; `driver_errors.translated(store)` around every use of a connection
- `head_table`: `load`, `insert`, `update`, `delete`, `page`, `runnable`
- `heads.Heads`: the heads a writing connection knows, through which it changes them
- `key_tables`: bindings, idempotency keys and tombstones
- `search_table`: `add`, `find`, `remove_session`, `clear`
"""
