"""What stands between clients and a target and keeps answers: the policy of a cache of two tiers. No sockets here."""
