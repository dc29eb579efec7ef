package replay

import "unicode/utf8"

// continuation reports whether b is a byte within a UTF-8 character.
func continuation(b byte) bool { return b&0xC0 == 0x80 }

// splitAt is where to cut b so that no character is split at its end: len(b),
// or the index of the last character if its rest may follow. Bytes that can
// begin no character are no reason to wait.
func splitAt(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax+1); i-- {
		if continuation(b[i]) {
			continue
		}
		if b[i] >= utf8.RuneSelf && !utf8.FullRune(b[i:]) {
			return i
		}
		break
	}
	return len(b)
}

// nextStart is i, or where the character ends that spans i. Of bytes whose
// beginning is not there (i is 0), a few that can only be inside a character
// are passed over.
func nextStart(b []byte, i int) int {
	if i == 0 {
		for i < min(len(b), utf8.UTFMax-1) && continuation(b[i]) {
			i++
		}
		return i
	}
	for k := 1; k < utf8.UTFMax && k <= i; k++ {
		if !continuation(b[i-k]) {
			_, size := utf8.DecodeRune(b[i-k:])
			return max(i, i-k+size)
		}
	}
	return i
}
