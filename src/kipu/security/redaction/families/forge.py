"""Tokens of forges, of what builds and checks there, and of registries of packages."""

from __future__ import annotations

from kipu.security.redaction.checksum import is_checked_hex, is_github_token
from kipu.security.redaction.rule import shape

RULES = (
    shape("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9_]{36,255}", check=is_github_token),
    shape("github-fine-grained-token", "github_pat_", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}", check=is_github_token),
    shape("gitlab-token", "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glsoat- glagent- glimt- glffct- gloas- glwt-",
          r"gl(?:pat|dt|rtr|rt|cbt|ptt|ft|soat|agent|imt|ffct|oas|wt)-(?:t[0-9]_)?[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_]{2,10}\.[a-z0-9]{9,12})?"),
    shape("gitlab-registration-token", "GR1348941", r"GR1348941[A-Za-z0-9_-]{20,}"),
    shape("atlassian-token", "ATATT3xFf ATCTT3xFf", r"AT[AC]TT3xFf[A-Za-z0-9+/_-]{40,}(?:=[A-F0-9]{8})?", check=is_checked_hex),
    shape("bitbucket-password", "ATBB", r"ATBB[A-Za-z0-9]{24,32}"),
    shape("sourcegraph-token", "sgp_", r"sgp_(?:(?:[a-f0-9]{16}|local)_)?[a-f0-9]{40}"),
    shape("circleci-token", "CCIPAT_ CCIPPRJ_", r"CCIP(?:AT|PRJ)_[A-Za-z0-9]{16,}_[a-f0-9]{40}"),
    shape("buildkite-token", "bkua_ bkct_ bkat_", r"bk(?:ua|ct|at)_[A-Za-z0-9_.-]{36,}"),
    shape("sonar-token", "sqp_ squ_ sqa_", r"sq[pua]_[a-f0-9]{40}"),
    shape("snyk-token", "snyk_uat. snyk_sat.", r"snyk_[us]at\.[A-Za-z0-9]{8}\.[A-Za-z0-9._-]{60,}"),
    shape("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}", check=is_github_token),
    shape("pypi-token", "pypi-AgE", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    shape("rubygems-key", "rubygems_", r"rubygems_[a-f0-9]{48}"),
    shape("crates-token", "cio", r"cio[A-Za-z0-9]{32}"),
    shape("docker-token", "dckr_pat_ dckr_oat_", r"dckr_[po]at_[A-Za-z0-9_-]{24,}"),
    shape("nuget-key", "oy2", r"oy2[a-z0-9]{43}"),
    shape("clojars-token", "CLOJARS_", r"CLOJARS_[a-z0-9]{60}"),
    shape("artifactory-key", "AKCp", r"AKCp[A-Za-z0-9]{60,80}"),
    shape("artifactory-reference", "cmVmdGtu", r"cmVmdGtu[A-Za-z0-9]{56}"),
    shape("packagist-token", "packagist_", r"packagist_[ou][a-z]{1,3}_[a-f0-9]{60,70}"),
    shape("jsr-token", "jsrp_ jsrd_", r"jsr[pd]_[A-Za-z0-9]{36,}"),
    shape("expo-token", "expo_", r"expo_[A-Za-z0-9_-]{40}"),
    shape("postman-key", "PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    shape("jetbrains-token", "perm:", r"perm:[A-Za-z0-9+/=_-]{4,}\.[A-Za-z0-9+/=_-]{4,}\.[A-Za-z0-9+/=_-]{20,}"),
    shape("linear-key", "lin_api_ lin_oauth_", r"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}"),
    shape("readme-key", "rdme_", r"rdme_[a-z0-9]{60,80}"),
)  # fmt: skip
