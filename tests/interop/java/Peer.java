import java.io.IOException;
import java.util.Arrays;

/**
 * Runs a server's main class in this process and ends it, with its shutdown hooks, when standard input closes:
 * no server outlives the test run that started it, however that ends.
 *
 * <p>Usage: {@code java Peer MAIN-CLASS ARGUMENT...}
 */
public final class Peer {
    private Peer() { }

    public static void main(String[] arguments) throws Exception {
        Thread guard = new Thread(Peer::exitAtEndOfInput, "end-of-input");
        guard.setDaemon(true);
        guard.start();
        String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Class.forName(arguments[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    private static void exitAtEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException ignored) {
            // a broken pipe means the same as its end
        }
        System.exit(0);
    }
}
