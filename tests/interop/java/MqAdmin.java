import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Commands of {@code mqadmin}, one after the other in this process, with what each prints and asks.
 *
 * <p>A command that calls {@code System.exit} ends this process; what it printed until then is in the file
 * {@code exit_file} of the request.
 */
public final class MqAdmin extends MQAdminStartup {
    private static volatile Run running;

    private MqAdmin() { }

    /** Signs requests where there is an account, and notes the code of each and of its answer. */
    private static final class Notes implements RPCHook {
        private final RPCHook signing;
        private final JSONArray answers = new JSONArray();

        Notes(JSONObject request) {
            String key = request.getString("access_key");
            signing = key == null ? null
                    : new AclClientRPCHook(new SessionCredentials(key, request.getString("secret_key")));
        }

        @Override
        public void doBeforeRequest(String address, RemotingCommand request) {
            if (signing != null) {
                signing.doBeforeRequest(address, request);
            }
            if (request.isOnewayRPC()) {
                note(request, null);
            }
        }

        @Override
        public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
            note(request, response);
        }

        private synchronized void note(RemotingCommand request, RemotingCommand response) {
            JSONObject one = JSONObject.of("asked", request.getCode());
            one.put("answered", response == null ? null : response.getCode());
            one.put("remark", response == null ? null : response.getRemark());
            answers.add(one);
        }

        synchronized JSONArray all() {
            return new JSONArray(answers);
        }
    }

    private static final class Run {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final Notes notes;
        final Path exitFile;

        Run(JSONObject request) {
            notes = new Notes(request);
            exitFile = Path.of(request.getString("exit_file"));
        }

        JSONObject result() {
            return JSONObject.of("out", out.toString(StandardCharsets.UTF_8),
                    "err", err.toString(StandardCharsets.UTF_8), "answers", notes.all());
        }
    }

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            Run run = running;
            if (run != null) {
                try {
                    Files.writeString(run.exitFile, run.result().toJSONString());
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
        }));
    }

    /** Name, alias and description of every command. */
    static Object commands(JSONObject request) {
        SUB_COMMANDS.clear();
        initCommand();
        JSONArray found = new JSONArray();
        for (SubCommand command : SUB_COMMANDS) {
            found.add(JSONObject.of("name", command.commandName(), "alias", command.commandAlias(),
                    "description", command.commandDesc()));
        }
        return found;
    }

    /** Runs {@code arguments} as mqadmin would; {@code ended} is false when it did not end within {@code within} s. */
    static Object run(JSONObject request) throws Exception {
        Run run = new Run(request);
        String[] arguments = request.getJSONArray("arguments").toArray(String.class);
        PrintStream out = System.out;
        PrintStream err = System.err;
        running = run;
        System.setOut(new PrintStream(run.out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(run.err, true, StandardCharsets.UTF_8));
        FutureTask<Void> task = new FutureTask<>(() -> {
            SUB_COMMANDS.clear();
            main0(arguments, run.notes);
            return null;
        });
        boolean ended = true;
        try {
            Thread thread = new Thread(task, "mqadmin");
            thread.setDaemon(true);
            thread.start();
            task.get((long) (request.getDoubleValue("within") * 1000), TimeUnit.MILLISECONDS);
        } catch (TimeoutException error) {
            ended = false;
        } catch (ExecutionException error) {
            error.getCause().printStackTrace();
        } finally {
            System.setOut(out);
            System.setErr(err);
            running = null;
        }
        JSONObject result = run.result();
        result.put("ended", ended);
        return result;
    }
}
