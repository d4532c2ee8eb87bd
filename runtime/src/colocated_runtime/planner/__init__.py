"""Model shape + devices + settings → bytes per phase → chosen settings. Pure; no torch."""
