"""Operations on jobs: asked for, met by threads, found again after any end of the service."""
