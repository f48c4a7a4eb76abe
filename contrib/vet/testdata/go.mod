module testdata

go 1.26.0

require github.com/quorumlock/quorumlock v0.0.0

replace github.com/quorumlock/quorumlock => ../../../
