#!/usr/bin/env bash
# Starts a decision record: docs/adr/new.sh "Title"
set -euo pipefail
cd "$(dirname "$0")"
title=${1:?a title}
last=$(ls [0-9][0-9][0-9][0-9]-*.md | tail -1)
number=$(printf '%04d' $((10#${last:0:4} + 1)))
slug=$(echo "$title" | tr '[:upper:]' '[:lower:]' | tr -cs 'a-z0-9' '-' | sed 's/^-//; s/-$//')
sed "s/^# NNNN .*/# $number $title/" 0000-template.md >"$number-$slug.md"
echo "- [$number]($number-$slug.md) $title" >>README.md
echo "docs/adr/$number-$slug.md"
