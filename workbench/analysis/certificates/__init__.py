"""The certificates, one statement or small family a file; `table.CERTIFICATES` lists them."""
