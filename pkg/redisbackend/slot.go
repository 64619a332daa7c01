package redisbackend

import "bytes"

// hashTag is the part of a key that decides its slot in a cluster: what stands between the first brace and the one that closes it,
// or the whole key where there is nothing (Redis Cluster specification, "hash tags").
func hashTag(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	length := bytes.IndexByte(key[open+1:], '}')
	if length <= 0 {
		return key
	}
	return key[open+1 : open+1+length]
}

// slotOf is the slot of a hash tag: CRC16 (XMODEM), modulo 16384.
func slotOf(tag []byte) uint16 {
	var crc uint16
	for _, b := range tag {
		crc = crc<<8 ^ crc16[byte(crc>>8)^b]
	}
	return crc % 16384
}

// crc16 has the remainders of all bytes by the polynomial x^16+x^12+x^5+1.
var crc16 = func() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= polynomial
			}
		}
		table[i] = crc
	}
	return table
}()
