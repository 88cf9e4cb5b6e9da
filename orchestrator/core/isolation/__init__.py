"""Which members of a failed bundle make it fail: ask and tell, so that every answer can be stored and resumed from."""

from orchestrator.core.isolation.state import Answer, Asked, Isolated, Isolation, Oracle, Question, ask, result, tell

__all__ = ["Answer", "Asked", "Isolated", "Isolation", "Oracle", "Question", "ask", "result", "tell"]
