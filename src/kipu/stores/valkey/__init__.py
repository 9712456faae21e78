"""The Valkey store: sessions in a Valkey or Redis server that runs already, with the durability it is set to."""
