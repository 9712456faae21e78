"""Tokens of forges, of what builds and checks there, and of registries of packages."""

from __future__ import annotations

from kipu.security.redaction.checksum import is_checked_hex, is_github_token
from kipu.security.redaction.rule import shape

RULES = (
    shape("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", pattern=r"gh[pousr]_[A-Za-z0-9_]{36,255}", check=is_github_token),
    shape("github-fine-grained-token", "github_pat_", pattern=r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}", check=is_github_token),
    shape("gitlab-token", "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glsoat- glagent- glimt- glffct- gloas- glwt-",
          pattern=r"gl(?:pat|dt|rtr|rt|cbt|ptt|ft|soat|agent|imt|ffct|oas|wt)-(?:t[0-9]_)?[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_]{2,10}\.[a-z0-9]{9,12})?"),
    shape("gitlab-registration-token", "GR1348941", pattern=r"GR1348941[A-Za-z0-9_-]{20,}"),
    shape("atlassian-token", "ATATT3xFf ATCTT3xFf", pattern=r"AT[AC]TT3xFf[A-Za-z0-9+/_-]{40,}(?:=[A-F0-9]{8})?", check=is_checked_hex),
    shape("bitbucket-password", "ATBB", pattern=r"ATBB[A-Za-z0-9]{24,32}"),
    shape("sourcegraph-token", "sgp_", pattern=r"sgp_(?:(?:[a-f0-9]{16}|local)_)?[a-f0-9]{40}"),
    shape("circleci-token", "CCIPAT_ CCIPPRJ_", pattern=r"CCIP(?:AT|PRJ)_[A-Za-z0-9]{16,}_[a-f0-9]{40}"),
    shape("buildkite-token", "bkua_ bkct_ bkat_", pattern=r"bk(?:ua|ct|at)_[A-Za-z0-9_.-]{36,}"),
    shape("sonar-token", "sqp_ squ_ sqa_", pattern=r"sq[pua]_[a-f0-9]{40}"),
    shape("snyk-token", "snyk_uat. snyk_sat.", pattern=r"snyk_[us]at\.[A-Za-z0-9]{8}\.[A-Za-z0-9._-]{60,}"),
    shape("npm-token", "npm_", pattern=r"npm_[A-Za-z0-9]{36}", check=is_github_token),
    shape("pypi-token", "pypi-AgE", pattern=r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    shape("rubygems-key", "rubygems_", pattern=r"rubygems_[a-f0-9]{48}"),
    shape("crates-token", "cio", pattern=r"cio[A-Za-z0-9]{32}"),
    shape("docker-token", "dckr_pat_ dckr_oat_", pattern=r"dckr_[po]at_[A-Za-z0-9_-]{24,}"),
    shape("nuget-key", "oy2", pattern=r"oy2[a-z0-9]{43}"),
    shape("clojars-token", "CLOJARS_", pattern=r"CLOJARS_[a-z0-9]{60}"),
    shape("artifactory-key", "AKCp", pattern=r"AKCp[A-Za-z0-9]{60,80}"),
    shape("artifactory-reference", "cmVmdGtu", pattern=r"cmVmdGtu[A-Za-z0-9]{56}"),
    shape("packagist-token", "packagist_", pattern=r"packagist_[ou][a-z]{1,3}_[a-f0-9]{60,70}"),
    shape("jsr-token", "jsrp_ jsrd_", pattern=r"jsr[pd]_[A-Za-z0-9]{36,}"),
    shape("expo-token", "expo_", pattern=r"expo_[A-Za-z0-9_-]{40}"),
    shape("postman-key", "PMAK-", pattern=r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    shape("jetbrains-token", "perm:", pattern=r"perm:[A-Za-z0-9+/=_-]{4,}\.[A-Za-z0-9+/=_-]{4,}\.[A-Za-z0-9+/=_-]{20,}"),
    shape("linear-key", "lin_api_ lin_oauth_", pattern=r"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}"),
    shape("readme-key", "rdme_", pattern=r"rdme_[a-z0-9]{60,80}"),
    shape("sonar-cloud-token", "sqco_", pattern=r"sqco_[A-Za-z0-9]{59}"),
    shape("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", pattern=r"sm_[aps]at_[a-zA-Z0-9]{16}"),
    shape("endor-token", "endr+", pattern=r"endr\+[a-zA-Z0-9-]{16}"),
    shape("gitlab-session", "_gitlab_session=", pattern=r"_gitlab_session=([0-9a-z]{32})"),
    shape("trello-token", "ATTA", pattern=r"ATTA[a-f0-9]{64}[A-F0-9]{0,8}"),
    shape("gradle-or-jfrog-token", "eyJ2ZXIi", pattern=r"eyJ2ZXIi[A-Za-z0-9_-]{12,}\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}"),
)  # fmt: skip
