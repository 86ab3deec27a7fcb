"""Operations on jobs: requested, executed in threads, and resumed after restarts."""
