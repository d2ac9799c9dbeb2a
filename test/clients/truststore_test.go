package clients

import (
	"bytes"
	"crypto/sha1" // #nosec: the format's own check sum
	"encoding/binary"
	"strconv"
	"unicode/utf16"
)

// javaTruststore gives certificates (DER) as a JKS file with the password
// "changeit", which the JVM reads without being told a type or a password. Java
// has no other way to trust a certificate than such a file.
func javaTruststore(certificates [][]byte) []byte {
	const (
		magic   = 0xfeedfeed
		version = 2
		trusted = 2 // the kind of entry: a trusted certificate
	)
	var b bytes.Buffer
	word := func(v uint32) { b.Write(binary.BigEndian.AppendUint32(nil, v)) }
	text := func(s string) {
		b.Write(binary.BigEndian.AppendUint16(nil, uint16(len(s))))
		b.WriteString(s)
	}
	word(magic)
	word(version)
	word(uint32(len(certificates)))
	for i, der := range certificates {
		word(trusted)
		text("ca-" + strconv.Itoa(i))
		b.Write(make([]byte, 8)) // the date: 1970
		text("X.509")
		word(uint32(len(der)))
		b.Write(der)
	}
	sum := sha1.New() // #nosec
	for _, unit := range utf16.Encode([]rune("changeit")) {
		sum.Write([]byte{byte(unit >> 8), byte(unit)})
	}
	sum.Write([]byte("Mighty Aphrodite"))
	sum.Write(b.Bytes())
	return sum.Sum(b.Bytes())
}
