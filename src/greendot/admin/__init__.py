"""The dashboard's server side: who looks, what they are shown, what they may do."""
