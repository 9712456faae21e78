"""Model clients. Import the one you need: none of them loads its library before it is used."""
