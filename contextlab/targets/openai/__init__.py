"""The wire behind `http:`: addresses and keys, flavours of servers, bytes into events. No target in itself."""
