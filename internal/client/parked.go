package client

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// Parked is the content of a detached hold's text.
type Parked struct {
	Key    string           // the lock's key, with its prefix
	Owner  quorumlock.Owner // the parked owner, which has the hold at the nodes
	Need   int              // the quorum
	Until  time.Time        // by the clock of the detaching process
	Source core.Source      // Counts has one for each cell
}

// parkedPrefix begins the text. It has the version.
const parkedPrefix = "qlh1."

// encoding is that of the text. It is strict: bits that no byte needs must be zero.
var encoding = base64.RawURLEncoding.Strict()

// String returns the text: the prefix, then the fields and their checksum in base64.
func (p *Parked) String() string {
	var b []byte
	add := func(n uint64) { b = binary.AppendUvarint(b, n) }
	add(p.Source.Token)
	add(uint64(p.Need))
	add(uint64(p.Until.UnixMilli()))
	add(uint64(len(p.Source.Counts)))
	for _, count := range p.Source.Counts {
		add(count - p.Source.Token)
	}
	add(uint64(len(p.Key)))
	b = append(append(b, p.Key...), p.Owner...)
	return parkedPrefix + encoding.EncodeToString(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

// ParseParked parses a text. The error is an ErrMisuse.
func ParseParked(text string) (*Parked, error) {
	bad := func(what string) error {
		return errs.Misusef("quorumlock: Attach: the text %.20q %s: use the whole text that Lease.Detach has returned", text, what)
	}
	code, ours := strings.CutPrefix(text, parkedPrefix)
	if !ours {
		return nil, bad("is not of a detached lease, or of another version of this library")
	}
	b, err := encoding.DecodeString(code)
	if err != nil || len(b) < 4 {
		return nil, bad("is damaged")
	}
	b, end := b[:len(b)-4], b[len(b)-4:]
	if crc32.ChecksumIEEE(b) != binary.BigEndian.Uint32(end) {
		return nil, bad("is damaged")
	}
	good := true
	next := func(most uint64) uint64 {
		n, size := binary.Uvarint(b)
		if good = good && size > 0 && n <= most; !good {
			return 0
		}
		b = b[size:]
		return n
	}
	const maxToken = 1<<53 - 1
	p := &Parked{}
	p.Source.Token = next(maxToken)
	p.Need = int(next(maxCells))
	p.Until = time.UnixMilli(int64(next(1 << 60)))
	for range next(maxCells) {
		p.Source.Counts = append(p.Source.Counts, p.Source.Token+next(maxToken-p.Source.Token))
	}
	size := next(uint64(len(b)))
	if !good || size > uint64(len(b)) || p.Source.Token == 0 || p.Need == 0 || p.Need > len(p.Source.Counts) {
		return nil, bad("is damaged")
	}
	p.Key, p.Owner = string(b[:size]), quorumlock.Owner(b[size:])
	if p.Key == "" || !strings.Contains(string(p.Owner), ":") {
		return nil, bad("is damaged")
	}
	return p, nil
}

// maxCells is above the number of nodes of any client.
const maxCells = 1 << 16
