"""The files cannot be reached as asked; none was changed."""

from __future__ import annotations

from kipu.errors.kipu_error import KipuError


class WorkspaceError(KipuError):
    """The workspace {root} cannot do it: {reason}."""

    code = "workspace"


class PathOutsideError(WorkspaceError):
    """{path!r} is not inside the workspace: {reason}. Name a path below its root."""

    code = "path_outside"


class PathNotFoundError(WorkspaceError):
    """There is no {path!r} in the workspace. List its directory to see what there is."""

    code = "path_not_found"


class WorkspaceMissingError(WorkspaceError):
    """The directory {root} of this session is gone. Bring it back, or choose another one with /cwd."""

    code = "workspace_missing"


class PathDeniedError(WorkspaceError):
    """{path!r} may not be {verb}: {reason}. Choose another path, or let a person do it."""

    code = "path_denied"


class PathTwinError(WorkspaceError):
    """{path!r} looks the same as {twin!r}, which is there already ({difference}). Use that name, or one that people can tell apart."""

    code = "path_twin"


class GitError(WorkspaceError):
    """git cannot do it in {root}: {reason}. Correct the repository, or choose a plain directory."""

    code = "git"


class RestoreError(WorkspaceError):
    """Some files of {root} could not be brought back: {reason}. Move what is in their way, then restore again; the rest is done."""

    code = "restore"


class HostBoundError(WorkspaceError):
    """The files of this session are on {host} ({reason}); this is {here}. Start `kipu worker` there, or choose others with /cwd."""

    code = "host_bound"


class SharedRootError(WorkspaceError):
    """{root} is not the directory that all workers of this store share: {reason}. Mount it there, or set `workspaces` to stored."""

    code = "shared_root"


class WorkspaceTooLargeError(WorkspaceError):
    """The files of {root} are too much to be kept in the store: {reason}. The session stays on its machine until there is less."""

    code = "workspace_too_large"
