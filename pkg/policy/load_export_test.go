package policy

// The fields that the loader knows, for the test that compares them with the schema.
func FileFields() []string     { return fileFields }
func PolicyFields() []string   { return policyFields }
func OverrideFields() []string { return overrideFields }

// Words gives the words that each field with a choice accepts.
func Words() map[string][]string {
	return map[string][]string{
		"algorithm":      words(algorithms),
		"onStoreFailure": words(failureModes),
		"onMissingKey":   words(missingKeys),
		"expose":         words(exposes),
		"advertise":      words(advertises),
		"mode":           words(modes),
		"charge":         words(charges),
		"normalize":      words(normalizes),
	}
}

func words[T any](choices []choice[T]) (words []string) {
	for _, c := range choices {
		words = append(words, c.word)
	}
	return words
}
