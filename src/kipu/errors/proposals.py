"""A proposal cannot be taken, or not be decided as asked; nothing was changed."""

from __future__ import annotations

from kipu.errors.concurrency import ConcurrencyError
from kipu.errors.inputs import InputError
from kipu.errors.kipu_error import KipuError


class ProposalNotFoundError(InputError):
    """There is no proposal {proposal_id!r}: {reason}. `kipu proposals ls --all` lists those there are."""

    code = "proposal_not_found"


class InvalidProposalError(InputError):
    """This cannot be proposed: {reason}. Correct it and propose again; nothing was kept."""

    code = "proposal_invalid"


class ProposalRepeatedError(InputError):
    """Proposal {proposal_id} said the same and is {status}: {reason}. It is not proposed again; say something else."""

    code = "proposal_repeated"


class ProposalUntriedError(InputError):
    """Nobody tried proposal {proposal_id} yet. Run `kipu proposals try {proposal_id}`, or approve it with --untried."""

    code = "proposal_untried"


class ProposalSuspectError(InputError):
    """Proposal {proposal_id} has {findings}. Look at it with `kipu proposals show`; --despite-warnings approves it as it is."""

    code = "proposal_suspect"


class ProposalDecidedError(ConcurrencyError):
    """Proposal {proposal_id} is {status} already{by}. `kipu proposals show {proposal_id}` tells who decided, and when."""

    code = "proposal_decided"


class ProposalMovedError(ConcurrencyError):
    """What proposal {proposal_id} changes has changed since: {moved}. `kipu proposals show` compares; --replace approves it anyway."""

    code = "proposal_moved"


class NotAPersonError(KipuError):
    """{principal!r} may not decide that: {reason}. A person does, with `kipu proposals` or `kipu memory` at their own terminal."""

    code = "not_a_person"
